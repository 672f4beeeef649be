"""The model runner for a GPU. Only `device_queue` and `cuda_graphs` hold what nothing but a GPU can exercise."""
