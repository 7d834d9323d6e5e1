"""Built-in actions: their declarations, and one module or folder per action with its plan, apply and report."""
