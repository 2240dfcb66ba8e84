package fetch

import (
	"sync"

	"golang.org/x/net/html"

	"example.com/trawl/pkg/crawl"
)

const (
	// A scratch that a page of unusual size has blown up is left to the garbage collector, as
	// [pooledBytes] says of bodies.
	pooledHrefs = 16 << 10
	pooledRefs  = 1 << 10 // of 16 bytes; an empty href takes none of the above
	pooledSeen  = 256
)

// scratch is what one pass over a page needs and nobody keeps: made anew, it would be a fifth of what a page allocates.
type scratch struct {
	source    source
	tokenizer html.Tokenizer
	// fresh is tokenizer as it was made: it has no method to begin anew. Both share the buffer that it begins with,
	// and its table of the names of attributes.
	fresh html.Tokenizer
	// spoilt reports that a long tag may have left a large table there: it would cost every later tag of other pages.
	spoilt bool

	hrefs []byte
	refs  []ref
	seen  map[crawl.Key]int
}

var scratches = sync.Pool{New: func() any {
	s := &scratch{seen: map[crawl.Key]int{}}
	s.fresh = *html.NewTokenizer(&s.source)
	return s
}}

// newScratch returns one that is at the beginning of page.
func newScratch(page []byte) *scratch {
	s := scratches.Get().(*scratch)
	s.source, s.tokenizer = source{page: page}, s.fresh
	return s
}

// release gives it back. After a panic it is not, for nobody knows what state it is in.
func (s *scratch) release() {
	if s.spoilt || cap(s.hrefs) > pooledHrefs || cap(s.refs) > pooledRefs || len(s.seen) > pooledSeen {
		return
	}
	clear(s.seen)
	s.source, s.tokenizer = source{}, html.Tokenizer{}
	scratches.Put(s)
}

// lend gives p the room for what it notes, with what it has noted already.
func (s *scratch) lend(p *parser) {
	p.hrefs, p.refs, p.seen = append(s.hrefs[:0], p.hrefs...), append(s.refs[:0], p.refs...), s.seen
}

// takeBack ends that; p has what it found in memory of its own.
func (s *scratch) takeBack(p *parser) {
	s.hrefs, s.refs = p.hrefs, p.refs
	p.hrefs, p.refs, p.seen = nil, nil, nil
}
