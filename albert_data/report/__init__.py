"""Reports: HTML pages that open from the disk. `inspect/` makes them from shards, `runs/` from training runs.

A page is made in three steps:

1. `charts.py` draws numbers as inline SVG (`Plot`). Colours are classes of CSS.
2. `page.py` writes tables (`render_table`) and charts (`Chart`, `render_charts`) as HTML, and escapes their text.
3. `page.render_page` puts sections into page.html, with theme.css: one look, light and dark, on a phone and a screen.

A page fetches nothing. Its content security policy admits its own style sheet and script, by hash, and nothing else,
so style attributes do not work either.
"""
