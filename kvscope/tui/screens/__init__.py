"""The places of the screen: main, request, and what opens above them."""
