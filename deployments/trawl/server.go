package main

import (
	"cmp"
	"io"
	"os"
	"strings"
	"time"

	"example.com/trawl/pkg/client"
)

// defaultURL is where `trawl up` listens when nothing else is said.
const defaultURL = "http://127.0.0.1:8008"

// lookServer is the longest pause between two looks at a job of a server: a person watches.
const lookServer = 500 * time.Millisecond

// maxKeyFile bounds the file of a key in bytes, so that the path of a device does not fill memory.
const maxKeyFile = 4096

// serverFlags say which server is asked, and who asks.
type serverFlags struct {
	URL     *string `name:"url" placeholder:"URL" help:"The server (TRAWL_URL); by default ${default_url}."`
	Key     string  `name:"key" placeholder:"KEY" help:"Your key (TRAWL_KEY). Others on this machine can see a flag: the variable or the file is better."`
	KeyFile string  `name:"key-file" placeholder:"FILE" help:"A file that holds your key (TRAWL_KEY_FILE)."`
}

// server is a service that jobs are sent to.
type server struct {
	*client.Client
	url string // for messages
}

// named returns the URL of the server that flag or environment name, "" for none. An empty
// flag is none, whatever the environment names.
func (f *serverFlags) named(s *session) string {
	if f.URL != nil {
		return *f.URL
	}
	return s.environ["TRAWL_URL"]
}

// connect makes the client of the server. Nothing is sent yet.
func (f *serverFlags) connect(s *session) (*server, error) {
	url := cmp.Or(f.named(s), defaultURL)
	key, err := f.key(s)
	if err != nil {
		return nil, err
	}
	if key == "" {
		return nil, failuref("There is no key for the server at %s: set TRAWL_KEY, or name a file with --key-file.",
			shownURL(url))
	}
	c, err := client.New(url, key, client.WithLongestLook(lookServer))
	if err != nil {
		text := strings.ReplaceAll(err.Error(), "trawl client: ", "")
		return nil, failuref("%s\n--url or TRAWL_URL names the server, TRAWL_KEY or --key-file the key.", capitalised(text))
	}
	return &server{Client: c, url: strings.TrimRight(url, "/")}, nil
}

// key returns the key, "" for none. What stands on the command line wins over the environment.
func (f *serverFlags) key(s *session) (string, error) {
	key, file := f.Key, f.KeyFile
	if key == "" && file == "" {
		key, file = s.environ["TRAWL_KEY"], s.environ["TRAWL_KEY_FILE"]
	}
	switch {
	case key != "" && file != "":
		return "", failuref("The key is given twice: give the key or the file that holds it, not both.")
	case file == "":
		return key, nil
	}
	return readKey(file)
}

// readKey reads the file of a key. Editors leave a line end behind, which is none of it.
func readKey(path string) (string, error) {
	f, err := os.Open(path)
	if err != nil {
		return "", failuref("The file of the key cannot be read: %w", err)
	}
	defer func() { _ = f.Close() }() // opened for reading: nothing is lost
	content, err := io.ReadAll(io.LimitReader(f, maxKeyFile+1))
	switch {
	case err != nil:
		return "", failuref("The file of the key cannot be read: %w", err)
	case len(content) > maxKeyFile:
		return "", failuref("%s holds no key: it has more than %d bytes.", path, maxKeyFile)
	}
	key := strings.TrimRight(string(content), "\r\n")
	if key == "" {
		return "", failuref("%s holds no key: it is empty.", path)
	}
	return key, nil
}
