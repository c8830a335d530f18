"""A small real shop that uses django_reactor: the demo, and the ground the tests stand on."""
