package fetch

import (
	"strings"
	"testing"
)

func TestMediaType(t *testing.T) {
	t.Parallel()
	tests := []struct {
		name         string
		lines        []string
		kind, expect string
	}{
		{"HTM-09 none", nil, "", ""},
		{"HTM-09 empty", []string{""}, "", ""},
		{"HTM-09 upper case", []string{"TEXT/HTML"}, "text/html", ""},
		{"HTM-09 parameter without value", []string{"text/html;charset"}, "text/html", ""},
		{"HTM-09 comma list", []string{"text/html, text/html; charset=utf-8"}, "text/html", "utf-8"},
		{"HTM-09 two lines, the last wins", []string{"text/plain", "text/html"}, "text/html", ""},
		{"last one is invalid", []string{"text/html, x"}, "text/html", ""},
		{"any is none", []string{"text/html, */*"}, "text/html", ""},
		{"a charset stays with its type", []string{"text/html; charset=gbk, text/html"}, "text/html", "gbk"},
		{
			"a charset does not go to another type",
			[]string{"text/plain; charset=gbk, text/html"},
			"text/html",
			"",
		},
		{"CHR-03 empty charset", []string{"text/html; charset="}, "text/html", ""},
		{"CHR-03 two charsets", []string{"text/html; charset=gbk; charset=utf-8"}, "text/html", "gbk"},
		{"quoted", []string{`text/html; x="a,b;charset=no"; Charset="GBK"`}, "text/html", "gbk"},
		{"single quotes", []string{`text/html;charset='utf-8'`}, "text/html", "utf-8"},
		{"no slash", []string{"html"}, "", ""},
		{"control bytes", []string{"text/\x01html"}, "", ""},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			if kind, label := mediaType(tt.lines); kind != tt.kind || label != tt.expect {
				t.Errorf("mediaType(%q) = %q, %q, want %q, %q", tt.lines, kind, label, tt.kind, tt.expect)
			}
		})
	}
}

func FuzzMediaType(f *testing.F) {
	f.Add(`text/html; charset="a\"b", x/y;charset`)
	f.Fuzz(func(t *testing.T, line string) {
		kind, label := mediaType([]string{line})
		if kind != "" && !validType(kind) || kind == "" && label != "" || label != strings.ToLower(label) {
			t.Errorf("mediaType(%q) = %q, %q", line, kind, label)
		}
	})
}

const pngHead = "\x89PNG\r\n\x1a\n\x00\x00\x00\rIHDR\x00\x00\x00\x01"

func TestSniff(t *testing.T) {
	t.Parallel()
	tests := []struct {
		name, body string
		labelled   bool
		kind       string
		html       bool
	}{
		{"HTM-08 a", "%PDF-1.4\n\x00\x01<a href=/pdf2>", true, "application/pdf", false},
		{"HTM-08 a, text only", "%PDF-1.4\n1 0 obj <a href=/pdf2>", true, "application/pdf", false},
		{"HTM-08 b", "PK\x03\x04\x14\x00\x00\x00\x08\x00<a href=/zip>", true, "application/zip", false},
		{"HTM-08 c", pngHead, true, "image/png", false},
		{
			"HTM-08 d",
			"--x\r\nContent-Type: application/pdf\r\n\r\n%PDF-1.4\n\x00",
			true,
			"application/pdf",
			false,
		},
		{"HTM-08 a page about PDF", "<p>A PDF begins with %PDF-1.4</p>", true, "text/html", true},
		{"HTM-08 text about PDF", "It begins with %PDF-1.4 <a href=/x>", true, "text/html", true},
		{"HTTP-02 gzip", "\x1f\x8b\x08\x00\x00\x00\x00\x00\x00\x03", true, "application/gzip", false},
		{
			"old Office",
			"\xd0\xcf\x11\xe0\xa1\xb1\x1a\xe1" + strings.Repeat("\x00", 600),
			true,
			"application/x-ole-storage",
			false,
		},
		{"text that begins like a bitmap", "BMW cars are made in Munich <a href=/x>", true, "text/html", true},
		{"text that begins like an archive", "PK is a nickname <a href=/x>", true, "text/html", true},
		{"a stray control byte", "hello \x01 world <a href=/x>", true, "text/html", true},
		{"UTF-16", "\xff\xfe<\x00p\x00>\x00", true, "text/html", true},
		{"HTTP-02 brotli whose coding was lost", "\x1b\x2f\x00\xf8\xa5\x05\x02\x13\x95\x84\x98\xe9", true, "application/octet-stream", false},
		{"HTTP-03 raw deflate whose coding was lost", "\xb3\x29\xc9\x2c\xc9\x49\xb5\xcb\xcf\xb6\xd1\x87\x31\x6c\x12\x15\x32", true, "application/octet-stream", false},
		{"windows-1251", "\xcf\xf0\xe8\xe2\xe5\xf2 <a href=/x>\xec\xe8\xf0</a>", true, "text/html", true},
		{"ISO-2022-JP", "\x1b$B%F%9%H\x1b(B<a href=/x>", true, "text/html", true},
		{"EBCDIC-like control bytes in UTF-8", "caf\xc3\xa9 \x01\x02", true, "text/html", true},
		{"labelled JSON", `{"a": "<a href=/x>"}`, true, "text/html", true},
		{"empty", "", true, "", true},
		{"blank", " \n", false, "", true},
		{"HTM-09 unlabelled page", "<title>x</title>", false, "text/html", true},
		{"HTM-09 unlabelled page that begins with meta", "\n<meta charset=utf-8>", false, "text/html", true},
		{"HTM-09 unlabelled, byte order mark", "\xef\xbb\xbf<!DOCTYPE html>", false, "text/html", true},
		{"HTM-09 unlabelled binary", "\x00\x9c\x07\x01\x80", false, "application/octet-stream", false},
		{"HTM-09 unlabelled text", "just words", false, "text/plain", false},
		{
			"unlabelled text that begins like a bitmap",
			"BMW cars are made in Munich",
			false,
			"text/plain",
			false,
		},
		{"unlabelled PNG", pngHead, false, "image/png", false},
		{"unlabelled XML", `<?xml version="1.0"?><feed/>`, false, "text/xml", false},
		{"unlabelled JSON", `{"a": 1}`, false, "application/json", false},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			if kind, html := sniff([]byte(tt.body), tt.labelled); kind != tt.kind || html != tt.html {
				t.Errorf(
					"sniff(%q, %t) = %q, %t, want %q, %t",
					tt.body,
					tt.labelled,
					kind,
					html,
					tt.kind,
					tt.html,
				)
			}
		})
	}
}
