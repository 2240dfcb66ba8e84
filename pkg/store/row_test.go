package store

import (
	"testing"

	"pgregory.net/rapid"

	"example.com/trawl/pkg/crawl"
)

// What is encoded is decoded again, and the scripts split it into the same fields.
func TestRowRoundTrip(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		word := rapid.StringMatching(`https?://[a-z0-9.]{1,20}/[!-~é中]{0,40}`)
		want := crawl.Item{
			Kind: crawl.ItemPage, N: rapid.Int64Range(1, 1<<40).Draw(t, "n"), Depth: rapid.IntRange(0, 100).Draw(t, "depth"),
			Parent: rapid.Int64Range(0, 1<<40).Draw(t, "parent"), Attempt: rapid.IntRange(0, 9).Draw(t, "attempt"),
			Hops: rapid.IntRange(0, 20).Draw(t, "hops"), URL: word.Draw(t, "url"),
		}
		if rapid.Bool().Draw(t, "redirected") {
			want.FetchURL = word.Draw(t, "fetch url")
		}
		got, err := parseRow(row(want))
		if err != nil || got != want {
			t.Fatalf("%+v became %+v, %v", want, got, err)
		}
	})
}

func FuzzParseRow(f *testing.F) {
	for _, s := range []string{"", "p 1 0 0 0 0 http://a/", "p 1 0 0 0 0 http://a/ http://b/", "p x 0 0 0 0 u", "pp 1 2 3 4 5 u", "p 1 2 3 4 5"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		it, err := parseRow(s)
		if err != nil {
			return
		}
		again, err := parseRow(row(it))
		if err != nil || again != it {
			t.Errorf("%q is %+v, which becomes %+v, %v", s, it, again, err)
		}
	})
}
