package extract

import (
	"bytes"

	"github.com/JohannesKaufmann/html-to-markdown/v2/converter"
	"github.com/JohannesKaufmann/html-to-markdown/v2/marker"
	"golang.org/x/net/html"
)

// renderLink writes a link in place of the library, which writes the query of an address anew and
// so makes another address of it, and which breaks a link over lines. The address is absolute.
func renderLink(ctx converter.Context, w converter.Writer, n *html.Node) converter.RenderStatus {
	var b bytes.Buffer
	ctx.RenderChildNodes(ctx.WithValue("is_inside_link", true), &b, n)
	text := bytes.Join(bytes.Fields(b.Bytes()), []byte(" "))
	if len(text) == 0 {
		_, _ = w.Write(b.Bytes())
		return converter.RenderSuccess
	}
	if isBlank(b.Bytes()[0]) {
		_ = w.WriteByte(' ')
	}
	_ = w.WriteByte('[')
	_, _ = w.Write(text)
	writeTarget(ctx, w, attrOf(n, "href"), attrOf(n, "title"))
	if isBlank(b.Bytes()[b.Len()-1]) {
		_ = w.WriteByte(' ')
	}
	return converter.RenderSuccess
}

// renderImage writes an image, see [renderLink].
func renderImage(ctx converter.Context, w converter.Writer, n *html.Node) converter.RenderStatus {
	_, _ = w.WriteString("![")
	_, _ = w.Write(escapedLabel(ctx, attrOf(n, "alt")))
	writeTarget(ctx, w, attrOf(n, "src"), attrOf(n, "title"))
	return converter.RenderSuccess
}

func writeTarget(ctx converter.Context, w converter.Writer, address, title string) {
	_, _ = w.WriteString("](" + address)
	if title != "" {
		_, _ = w.WriteString(` "`)
		_, _ = w.Write(escapedLabel(ctx, title))
		_ = w.WriteByte('"')
	}
	_ = w.WriteByte(')')
}

// escapedLabel returns a text of one line as it can stand in brackets or quotes. The library knows
// which of its other signs mean something.
func escapedLabel(ctx converter.Context, s string) []byte {
	b := bytes.ReplaceAll([]byte(s), []byte("<"), []byte("&lt;"))
	b = ctx.EscapeContent(b)
	for _, sign := range []string{"[", "]", `"`, `\`} {
		b = bytes.ReplaceAll(b, []byte(string(marker.MarkerEscaping)+sign), []byte(`\`+sign))
	}
	return b
}

func isBlank(c byte) bool { return c == ' ' || c == '\n' || c == '\t' }
