"""What `gpu_check.py` runs."""
