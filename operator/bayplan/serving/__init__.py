"""What the process tells about itself over HTTP: health and metrics."""
