package crawl

import (
	"fmt"
	"strings"
)

// A crawler trap is a site that makes links without end: a relative link that adds a
// directory to every URL it stands on, a calendar with a next month, a filter for every
// combination of filters. What shows in one URL is refused by [Rules.Check]; what
// shows only in the number of URLs has a name, see [Rules.Pattern], and a budget.
// These are the bounds of the former. They are far from what people publish: of the 240,000
// files of a Linux machine, manuals and sources, the path of none breaks one; the
// deepest has 20 segments.
const (
	MaxPathSegments = 32
	MaxPathBytes    = 2048 // of the path; a title of 200 Chinese characters has 1,800
	MaxQueryBytes   = 2048 // of the query without "?"
	MaxParams       = 32   // of a query
	// MaxSegmentRun is how often one segment may stand in a row. Two or three of them
	// together, as in /a/b/a/b/, may stand MaxGroupRun times.
	MaxSegmentRun = 3
	MaxGroupRun   = 2
	// MaxRepeats is how many segments may have stood before in the same path, in all.
	// It bounds what several relative links make together: two of them make some 60
	// paths until all that are longer are refused. Segments of digits alone do not count,
	// here and above: /0/0/0/0/1 is how some sites write filters.
	MaxRepeats = 5
)

// trap is what makes a URL one that is refused as [RefusedTrap]; the zero value is none.
type trap struct {
	kind trapKind
	n    int    // the number that is too high
	text string // what repeats
}

type trapKind byte

const (
	trapNone trapKind = iota
	trapSegments
	trapPathBytes
	trapQueryBytes
	trapParams
	trapRun
	trapRepeats
)

// String is the rule, for a person.
func (t trap) String() string {
	switch t.kind {
	case trapSegments:
		return fmt.Sprintf("%d path segments, at most %d", t.n, MaxPathSegments)
	case trapPathBytes:
		return fmt.Sprintf("path of %d bytes, at most %d", t.n, MaxPathBytes)
	case trapQueryBytes:
		return fmt.Sprintf("query of %d bytes, at most %d", t.n, MaxQueryBytes)
	case trapParams:
		return fmt.Sprintf("%d query parameters, at most %d", t.n, MaxParams)
	case trapRun:
		return fmt.Sprintf("path segment %q repeats", clip(t.text))
	case trapRepeats:
		return fmt.Sprintf("%d repeated path segments, at most %d", t.n, MaxRepeats)
	case trapNone:
	}
	return ""
}

// trapOf looks for a trap in a URL in its normal form.
func trapOf(n URL) trap {
	path, query := n.Path(), n.Query()
	switch {
	case len(path) > MaxPathBytes:
		return trap{kind: trapPathBytes, n: len(path)}
	case len(query) > MaxQueryBytes:
		return trap{kind: trapQueryBytes, n: len(query)}
	}
	if query != "" {
		if params := strings.Count(query, "&") + 1; params > MaxParams {
			return trap{kind: trapParams, n: params}
		}
	}
	return trapOfPath(strings.TrimSuffix(path[1:], "/"))
}

// trapOfPath looks at the segments of a path without the slashes around it.
func trapOfPath(path string) trap {
	count := strings.Count(path, "/") + 1
	switch {
	case count > MaxPathSegments:
		return trap{kind: trapSegments, n: count}
	case count <= MaxSegmentRun: // too few for any rule: most paths
		return trap{}
	}
	var buf [MaxPathSegments]string
	segments := buf[:0]
	for s := range strings.SplitSeq(path, "/") {
		segments = append(segments, s)
	}
	for size := 1; size <= 3; size++ {
		if at := runOf(segments, size); at >= 0 {
			return trap{kind: trapRun, text: strings.Join(segments[at:at+size], "/")}
		}
	}
	if count > MaxRepeats+1 {
		if n := repeats(segments); n > MaxRepeats {
			return trap{kind: trapRepeats, n: n}
		}
	}
	return trap{}
}

// runOf returns where a group of size segments begins that stands too often in a row, -1
// for nowhere.
func runOf(segments []string, size int) int {
	most := MaxSegmentRun
	if size > 1 {
		most = MaxGroupRun
	}
	same := 0 // segments that equal the one size before, in a row
	for i := size; i < len(segments); i++ {
		if segments[i] != segments[i-size] {
			same = 0
			continue
		}
		// One more repetition than may be: most groups behind the first.
		if same++; same >= most*size && !numeric(segments[i-size+1:i+1]) {
			return i - size + 1
		}
	}
	return -1
}

// numeric reports whether all of segments are numbers.
func numeric(segments []string) bool {
	for _, s := range segments {
		if s == "" || !allDigits(s) {
			return false
		}
	}
	return true
}

// repeats counts the segments that stood before, numbers apart.
func repeats(segments []string) int {
	n := 0
	for i, s := range segments {
		for _, before := range segments[:i] {
			if s == before && !numeric(segments[i:i+1]) {
				n++
				break
			}
		}
	}
	return n
}
