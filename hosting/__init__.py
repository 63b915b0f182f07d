"""What every role stands on as a process: settings, logs, a socket to listen on, connections."""
