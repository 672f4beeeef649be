"""What each panel shows, as pure functions from facts to lines of spans: no widget, no style, no terminal."""
