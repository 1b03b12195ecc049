"""Who may come in, how often, and through which door: tokens, rates, connections, certificates, signed links."""
