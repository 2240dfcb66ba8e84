package store

import (
	"bytes"
	"crypto/sha256"
	"encoding/json"
	"fmt"
	"math/big"
	"slices"
	"strconv"
	"strings"

	"example.com/trawl/pkg/crawl"
)

// keptItem is an item as its hash has it, behind the times and the job that the scripts write.
type keptItem struct {
	Key       string          `json:"key,omitempty"` // absent where it is SourceURL
	SourceURL string          `json:"source_url"`
	URL       string          `json:"url,omitempty"` // absent where it is SourceURL
	Title     string          `json:"title,omitempty"`
	Fields    json.RawMessage `json:"fields,omitempty"`
}

// keptCounts are what is counted of an item, as items.lua reads it.
type keptCounts struct {
	Facets  map[string][]string  `json:"f"`
	Numbers map[string][2]string `json:"n"`
}

// digest16 names keys and pages in the hashes of a collection.
func digest16(s string) []byte {
	sum := sha256.Sum256([]byte(s))
	return sum[:16]
}

// appendUpserts encodes what enters the collection as collection.lua reads it.
func appendUpserts(args []any, a *Accepted, plan *crawl.Plan) ([]any, error) {
	if len(a.Upserts) > 0 && plan.Collection == nil {
		return nil, fmt.Errorf("store: %d upserts of a job without a collection", len(a.Upserts))
	}
	var b bytes.Buffer
	for i := range a.Upserts {
		u := &a.Upserts[i]
		if u.Item < 0 || u.Item > len(a.Items) || u.Key == "" || len(u.Key) > crawl.MaxKeyBytes {
			return nil, fmt.Errorf("store: an upsert of item %d of %d, with a key of %d bytes", u.Item, len(a.Items), len(u.Key))
		}
		it := keptItem{SourceURL: a.Page.SourceURL, Title: a.Page.Title, Fields: a.Page.Fields}
		if u.Item > 0 {
			it.Fields = a.Items[u.Item-1]
		}
		if u.Key != it.SourceURL {
			it.Key = u.Key
		}
		if a.Page.URL != it.SourceURL {
			it.URL = a.Page.URL
		}
		if err := writeJSON(&b, &it); err != nil {
			return nil, fmt.Errorf("store: item: %w", err)
		}
		item := bytes.Clone(b.Bytes())
		counted, err := u.counted(plan.Collection)
		if err != nil {
			return nil, err
		}
		args = append(args, digest16(u.Key), u.Fingerprint[:], u.Item, item, counted)
	}
	return args, nil
}

// counted encodes what of an item is counted; empty for nothing. It leaves out what is not as
// the documentation of [Upsert] says, or not of the collection: what nobody would find again
// would be kept for ever.
func (u *Upsert) counted(c *crawl.Collection) ([]byte, error) {
	k := keptCounts{Facets: map[string][]string{}, Numbers: map[string][2]string{}}
	for _, f := range u.Facets {
		has := k.Facets[f.Name]
		if slices.Contains(c.Facets, f.Name) && f.Value != "" && len(f.Value) <= crawl.MaxFacetBytes &&
			!strings.Contains(f.Value, "\x00") && len(has) < crawl.MaxFacetValues && !slices.Contains(has, f.Value) {
			k.Facets[f.Name] = append(has, f.Value)
		}
	}
	for _, n := range u.Numbers {
		_, twice := k.Numbers[n.Name]
		whole, millionths, ok := splitNumber(n.Value)
		if ok && !twice && slices.Contains(c.Numbers, n.Name) {
			k.Numbers[n.Name] = [2]string{strconv.FormatInt(whole, 10), fmt.Sprintf("%06d", millionths)}
		}
	}
	if len(k.Facets) == 0 && len(k.Numbers) == 0 {
		return []byte{}, nil
	}
	var b bytes.Buffer
	if err := writeJSON(&b, &k); err != nil {
		return nil, fmt.Errorf("store: counts: %w", err)
	}
	return b.Bytes(), nil
}

// longestNumber bounds the digits that are worth reading exactly.
const longestNumber = 100

var million = big.NewInt(1_000_000)

// splitNumber answers the greatest integer that is not above a number and the millionths that
// it is above that. The number is rounded to as many, half away from zero. ok is false for what is
// no number, or one beyond [crawl.MaxNumberValue].
func splitNumber(n json.Number) (whole, millionths int64, ok bool) {
	f, err := n.Float64()
	// The exact value is taken only of what is short: 1e-999999999 would be a billion digits.
	if err != nil || !(f >= -2*crawl.MaxNumberValue && f <= 2*crawl.MaxNumberValue) {
		return 0, 0, false
	}
	text := n.String()
	if f > -1e-9 && f < 1e-9 {
		return 0, 0, true
	}
	if len(text) > longestNumber {
		text = strconv.FormatFloat(f, 'f', -1, 64)
	}
	r, ok := new(big.Rat).SetString(text)
	if !ok {
		return 0, 0, false
	}
	if most := new(big.Rat).SetInt64(crawl.MaxNumberValue); new(big.Rat).Abs(r).Cmp(most) > 0 {
		return 0, 0, false
	}
	all, _ := new(big.Int).SetString(strings.Replace(r.FloatString(crawl.NumberDecimals), ".", "", 1), 10)
	w, m := new(big.Int).DivMod(all, million, new(big.Int)) // Euclidean: m is never negative
	return w.Int64(), m.Int64(), true
}

// joinNumber is the inverse of splitNumber, without zeros at the end.
func joinNumber(whole, millionths int64) json.Number {
	all := new(big.Int).Mul(big.NewInt(whole), million)
	return decimal(new(big.Rat).SetFrac(all.Add(all, big.NewInt(millionths)), million))
}

// decimal spells a number with at most [crawl.NumberDecimals] decimals.
func decimal(r *big.Rat) json.Number {
	s := r.FloatString(crawl.NumberDecimals)
	s = strings.TrimSuffix(strings.TrimRight(s, "0"), ".")
	if s == "-0" {
		s = "0"
	}
	return json.Number(s)
}
