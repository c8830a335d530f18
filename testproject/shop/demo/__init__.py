"""What `manage.py demo` is made of."""
