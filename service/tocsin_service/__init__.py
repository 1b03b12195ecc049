"""The Tocsin service: everything with a clock or a socket."""
