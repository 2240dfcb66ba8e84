package extract

import (
	"crypto/sha256"

	"golang.org/x/net/html/atom"
)

// Fingerprint tells what a reader would see: it is the same for two pages of the same text and
// title, whatever their markup. It is the first 128 bits of a SHA-256.
func (d *Document) Fingerprint() [16]byte {
	text, _ := lineOf(d.root, MaxTextBytes)
	h := sha256.New()
	h.Write([]byte(d.title()))
	h.Write([]byte{0})
	h.Write([]byte(text))
	return [16]byte(h.Sum(nil)[:16])
}

// title returns the title of the page: its first title element that is HTML's, not SVG's.
func (d *Document) title() string {
	for n := d.root.FirstChild; n != nil; n = next(n, d.root) {
		if n.DataAtom == atom.Title && n.Namespace == "" && !inTemplate(n) {
			t, _ := lineOf(n, maxTitleBytes)
			return t
		}
	}
	return ""
}
