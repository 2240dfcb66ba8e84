package store

import (
	"fmt"
	"strconv"
	"strings"

	"example.com/trawl/pkg/crawl"
)

// row encodes an item as the containers hold it: "kind n depth parent attempt hops
// url [fetch_url]". URLs are serialised and hold no space, so that a space divides.
func row(it crawl.Item) string {
	b := make([]byte, 0, 32+len(it.URL)+len(it.FetchURL))
	b = append(b, byte(it.Kind), ' ')
	b = append(strconv.AppendInt(b, it.N, 10), ' ')
	b = append(strconv.AppendInt(b, int64(it.Depth), 10), ' ')
	b = append(strconv.AppendInt(b, it.Parent, 10), ' ')
	b = append(strconv.AppendInt(b, int64(it.Attempt), 10), ' ')
	b = append(strconv.AppendInt(b, int64(it.Hops), 10), ' ')
	b = append(b, it.URL...)
	if it.FetchURL != "" {
		b = append(append(b, ' '), it.FetchURL...)
	}
	return string(b)
}

// parseRow is the inverse of row.
func parseRow(s string) (crawl.Item, error) {
	f := strings.Split(s, " ")
	if len(f) < 7 || len(f) > 8 || len(f[0]) != 1 {
		return crawl.Item{}, fmt.Errorf("store: a frontier row of %d fields", len(f))
	}
	var n [5]int64
	for i := range n {
		v, err := strconv.ParseInt(f[i+1], 10, 64)
		if err != nil {
			return crawl.Item{}, fmt.Errorf("store: frontier row: %w", err)
		}
		n[i] = v
	}
	it := crawl.Item{
		Kind: crawl.ItemKind(f[0][0]), N: n[0], Depth: int(n[1]), Parent: n[2], Attempt: int(n[3]), Hops: int(n[4]),
		URL: f[6],
	}
	if len(f) == 8 {
		it.FetchURL = f[7]
	}
	return it, nil
}
