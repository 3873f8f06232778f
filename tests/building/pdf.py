"""A PDF with a line of ASCII text a page, written by hand."""

from __future__ import annotations


def pdf(*pages: str, encrypted: bool = False) -> bytes:
    """A whole file; `encrypted` asks for a password that nobody has."""
    kids = " ".join(f"{4 + 2 * i} 0 R" for i in range(len(pages)))
    bodies = [
        "<< /Type /Catalog /Pages 2 0 R >>",
        f"<< /Type /Pages /Count {len(pages)} /Kids [{kids}] >>",
        "<< /Type /Font /Subtype /Type1 /BaseFont /Helvetica >>",
    ]
    for i, page in enumerate(pages):
        stream = f"BT /F1 12 Tf 72 700 Td ({page}) Tj ET" if page else ""
        bodies += [
            f"<< /Type /Page /Parent 2 0 R /MediaBox [0 0 612 792] /Contents {5 + 2 * i} 0 R "
            f"/Resources << /Font << /F1 3 0 R >> >> >>",
            f"<< /Length {len(stream)} >>\nstream\n{stream}\nendstream",
        ]
    if encrypted:
        keys = f"/O ({'A' * 32}) /U ({'A' * 32})"
        bodies.append(f"<< /Filter /Standard /V 2 /R 3 /Length 128 /P -4 {keys} >>")
    out, offsets = "%PDF-1.4\n", []
    for number, body in enumerate(bodies, start=1):
        offsets.append(len(out))
        out += f"{number} 0 obj\n{body}\nendobj\n"
    start, size = len(out), len(bodies) + 1
    out += f"xref\n0 {size}\n0000000000 65535 f \n"
    out += "".join(f"{offset:010d} 00000 n \n" for offset in offsets)
    secret = f" /Encrypt {size - 1} 0 R /ID [<41> <41>]" if encrypted else ""
    out += f"trailer\n<< /Size {size} /Root 1 0 R{secret} >>\nstartxref\n{start}\n%%EOF\n"
    return out.encode("latin-1")
