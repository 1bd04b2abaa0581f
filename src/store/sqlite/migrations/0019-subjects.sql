-- Words of subjects, to search by (http/README.md "Lookup"): written behind the acceptance, in slices. The row is the
-- content's; the texts themselves stay in `contents`. `meta` has the number of the last content that is in it
-- (`indexed_content`; none: 0). Numbers of contents are not given again.

create virtual table subjects using fts5 (subject, content = '', contentless_delete = 1, tokenize = 'unicode61');
