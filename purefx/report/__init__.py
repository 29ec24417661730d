"""The report: a program, how it came to be and what is wrong with it, as one HTML file that needs nothing else.

``gather`` makes plain data of a program (``rows`` of its nodes, ``origins`` of them, ``parts`` that it was split into), ``page``
puts the data into a page, ``write`` is the function that users call.  The page itself is `page.html`, `page.css`, `model.js`
(the data, and what differs between two steps), `draw.js` and `page.js`; `dagre.min.js` lays a graph out.
"""

from __future__ import annotations

from purefx.report.write import report

__all__ = ["report"]
