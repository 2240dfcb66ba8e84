package store

import (
	"bytes"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"sync"

	"github.com/klauspost/compress/zstd"

	"example.com/trawl/pkg/crawl"
)

// MaxItems bounds the items of one page.
const MaxItems = 1000

// Packed is the content of a page as it is stored. Its zero value is none.
//
// The first byte says in which form the rest is, so that a later version can have another; the
// next four are the size of the content unpacked, big-endian, where content.lua reads it
// whatever the form. What follows is a [crawl.Content] as compact JSON, compressed or not.
type Packed struct{ data []byte }

// The forms of [Packed].
const (
	formJSON byte = 1
	formZstd byte = 2 // JSON as one zstd frame (RFC 8878) without a checksum
)

const (
	packedHead = 5
	// compressAbove is a size in bytes below which there is little to win.
	compressAbove = 1 << 10
	// maxContent bounds the content of one page, in bytes as JSON. It is far above that of
	// the largest page, and below the 512 MB that a value of Redis may have.
	maxContent = 256 << 20
	// keepBuffer is the most that a buffer may hold to be used again: one huge page must not
	// have its memory kept for good.
	keepBuffer = 1 << 20
)

// keptContent is crawl.Content as it is stored: an empty list was asked for, nil was not.
type keptContent struct {
	Markdown *string          `json:"markdown,omitzero"`
	Text     *string          `json:"text,omitzero"`
	HTML     *string          `json:"html,omitzero"`
	Links    []crawl.PageLink `json:"links,omitzero"`
	Metadata *crawl.Metadata  `json:"metadata,omitzero"`
}

// packer has what packing a page takes and can be used again.
type packer struct {
	text    bytes.Buffer
	packed  []byte
	encoder *zstd.Encoder
}

var (
	packers  sync.Pool // of *packer
	decoders sync.Pool // of *zstd.Decoder
)

func takePacker() (*packer, error) {
	if p, ok := packers.Get().(*packer); ok {
		return p, nil
	}
	e, err := zstd.NewWriter(nil, zstd.WithEncoderConcurrency(1), zstd.WithLowerEncoderMem(true),
		zstd.WithEncoderCRC(false))
	if err != nil {
		return nil, fmt.Errorf("store: zstd: %w", err)
	}
	return &packer{encoder: e}, nil
}

func (p *packer) giveBack() {
	if p.text.Cap() > keepBuffer {
		p.text, p.packed = bytes.Buffer{}, nil
	}
	packers.Put(p)
}

// Pack prepares the content of a page for a [Commit]: the CPU that it takes is not the slice's
// loop's. Values above a size are compressed. It is safe for concurrent use, and fails for a
// content that is no JSON or above 256 MiB.
func Pack(c *crawl.Content) (Packed, error) {
	if c.IsZero() {
		return Packed{}, nil
	}
	p, err := takePacker()
	if err != nil {
		return Packed{}, err
	}
	defer p.giveBack()
	if err := writeJSON(&p.text, keptContent(*c)); err != nil {
		return Packed{}, fmt.Errorf("store: content: %w", err)
	}
	text := p.text.Bytes()
	if len(text) > maxContent {
		return Packed{}, fmt.Errorf("store: a content of %d bytes, more than %d", len(text), maxContent)
	}
	if len(text) > compressAbove {
		p.packed = p.encoder.EncodeAll(text, append(p.packed[:0], packHead(formZstd, len(text), 0)...))
		if len(p.packed) < packedHead+len(text) {
			return Packed{bytes.Clone(p.packed)}, nil
		}
	}
	return Packed{append(packHead(formJSON, len(text), len(text)), text...)}, nil
}

// packHead begins a packed value of the given size, with room for what follows.
func packHead(form byte, size, room int) []byte {
	return binary.BigEndian.AppendUint32(append(make([]byte, 0, packedHead+room), form), uint32(size))
}

// unpack is the inverse of [Pack]. size is what the record says, and the most that it unpacks.
func unpack(data []byte, size int64) (*crawl.Content, error) {
	if len(data) < packedHead || size < 0 || size > maxContent ||
		int64(binary.BigEndian.Uint32(data[1:packedHead])) != size {
		return nil, fmt.Errorf("a packed content of %d bytes is not the one of %d that its record has", len(data), size)
	}
	text := data[packedHead:]
	switch data[0] {
	case formJSON:
	case formZstd:
		var err error
		if text, err = inflate(text, size); err != nil {
			return nil, err
		}
	default:
		return nil, fmt.Errorf("a packed content is in form %d, which only a later version of Trawl reads", data[0])
	}
	if int64(len(text)) != size {
		return nil, fmt.Errorf("a packed content has %d bytes, and its record says %d", len(text), size)
	}
	var c keptContent
	if err := json.Unmarshal(text, &c); err != nil {
		return nil, err
	}
	out := crawl.Content(c)
	return &out, nil
}

var errInflate = errors.New("a packed content does not decompress")

// inflate decompresses a zstd frame to at most size bytes.
func inflate(frame []byte, size int64) ([]byte, error) {
	d, ok := decoders.Get().(*zstd.Decoder)
	if !ok {
		var err error
		d, err = zstd.NewReader(nil, zstd.WithDecoderConcurrency(1), zstd.WithDecoderLowmem(true),
			zstd.WithDecodeAllCapLimit(true))
		if err != nil {
			return nil, fmt.Errorf("zstd: %w", err)
		}
	}
	defer decoders.Put(d)
	text, err := d.DecodeAll(frame, make([]byte, 0, size))
	if err != nil {
		return nil, fmt.Errorf("%w: %w", errInflate, err)
	}
	return text, nil
}

// writeJSON fills b with v as compact JSON. What is HTML in it is not escaped: nobody puts it
// into a page, and each < would take six bytes.
func writeJSON(b *bytes.Buffer, v any) error {
	b.Reset()
	e := json.NewEncoder(b)
	e.SetEscapeHTML(false)
	if err := e.Encode(v); err != nil {
		return err
	}
	b.Truncate(b.Len() - 1) // the line feed
	return nil
}
