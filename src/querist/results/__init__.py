"""What an answer is made of: findings, tables, figures, a layout, a summary, and gates on them."""
