"""The long-term memory as one pipeline: remember, recall, prompt, answer (CoreMem, Section 3).

It joins the façades below it (`memory`, `distill`) with a generator; nothing in them imports this package.
"""
