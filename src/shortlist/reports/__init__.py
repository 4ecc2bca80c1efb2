"""HTML reports: Jinja2 templates, the figures they show, and number formats."""
