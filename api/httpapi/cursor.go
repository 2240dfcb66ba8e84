package httpapi

import (
	"encoding/base64"
	"encoding/binary"
)

// Kinds of cursor. A cursor of one list is not one of another: the positions
// mean different things, and a mix-up would skip or repeat in silence.
const (
	cursorJobs    = 'j'
	cursorRecords = 'r'
	cursorErrors  = 'e'
)

// cursorEncoding is strict, so that a position has one spelling only.
var cursorEncoding = base64.RawURLEncoding.Strict()

const cursorBytes = 9 // kind, position as 8 bytes big-endian

// encodeCursor returns the opaque form of a position in a list. It says nothing
// about the job: the job's id is in the path, and its tenant in the key.
func encodeCursor(kind byte, position int64) string {
	b := binary.BigEndian.AppendUint64([]byte{kind}, uint64(position))
	return cursorEncoding.EncodeToString(b)
}

// decodeCursor reads what encodeCursor of the same kind returned; nothing else
// is accepted.
func decodeCursor(kind byte, s string) (position int64, ok bool) {
	if len(s) != cursorEncoding.EncodedLen(cursorBytes) {
		return 0, false
	}
	b, err := cursorEncoding.DecodeString(s)
	if err != nil || len(b) != cursorBytes || b[0] != kind { // the decoder skips line breaks: length again
		return 0, false
	}
	position = int64(binary.BigEndian.Uint64(b[1:]))
	return position, position >= 0
}
