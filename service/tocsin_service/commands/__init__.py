"""What the commands of ``tocsin`` do; :mod:`tocsin_service.cli` reads their flags."""
