"""Reports: HTML pages that open from the disk. `inspect` makes them of shards, `train` of runs.

A page is made in three steps:

1. `charts.py` draws numbers as inline SVG (`Plot`, `draw_bar_rows`, `draw_stacked_rows`). Colours are names of classes.
2. `page.py` writes tables (`render_table`) and figures (`Chart`, `render_chart`) as HTML, and escapes all text in them.
3. `page.render_page` puts sections into page.html, with theme.css: one look, light and dark, on a phone and a screen.

A page fetches nothing. Its content security policy admits its own style sheet and script, by hash, and nothing else.
"""
