package redisconn

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"sync/atomic"
	"time"

	"example.com/trawl/pkg/crawl"
)

// What a process of Trawl calls the settings that come here. Faults name them, because
// they are where a person corrects what is wrong.
const (
	settingURL  = "TRAWL_REDIS_URL"
	settingCA   = "TRAWL_REDIS_CA"
	settingCert = "TRAWL_REDIS_CERT"
	settingKey  = "TRAWL_REDIS_CERT_KEY"
)

// maxPEM bounds a file of certificates: that of a whole system has a quarter of it, and a
// path to a device does not fill memory.
const maxPEM = 1 << 20

// TLS names the PEM files of connections over TLS; the zero value checks the server by the
// CAs that the system trusts and shows it no certificate. They are read once, by [Open]: a
// certificate that was renewed counts from the next start on.
type TLS struct {
	CA   string // the CAs that may have signed the server's certificate, and no other
	Cert string // the certificate that is shown to a server that asks for one, with its chain
	Key  string // the key of Cert
}

// peer is what is known of the other end of the connections of one client.
type peer struct {
	tls   bool        // it is spoken to over TLS
	shows bool        // a certificate is shown to it
	asked atomic.Bool // it asked for one
}

// dialer returns what opens connections and shakes hands on them. go-redis has one, but it
// hides which of the two failed, and heeds no context.
func dialer(c *tls.Config) Dialer {
	// As in go-redis: a peer that has vanished is noticed before a load balancer forgets the way to it.
	network := net.Dialer{KeepAliveConfig: net.KeepAliveConfig{
		Enable: true, Idle: 30 * time.Second, Interval: 5 * time.Second, Count: 3,
	}}
	return func(ctx context.Context, kind, address string) (net.Conn, error) {
		raw, err := network.DialContext(ctx, kind, address)
		if err != nil {
			return nil, err
		}
		own := c.Clone()
		// The host of the URL, or the one that a Sentinel or the Cluster announces.
		if own.ServerName, _, err = net.SplitHostPort(address); err != nil {
			return nil, errors.Join(err, raw.Close())
		}
		conn := tls.Client(raw, own)
		if err := conn.HandshakeContext(ctx); err != nil {
			_ = raw.Close() // the handshake has failed, whatever this says
			// Nothing was sent, and whoever asks whether it may have been should see that.
			return nil, &net.OpError{Op: "dial", Net: kind, Addr: raw.RemoteAddr(), Err: handshakeError(err)}
		}
		return conn, nil
	}
}

// handshakeError says what to do about a handshake that failed.
func handshakeError(err error) error {
	if errors.Is(err, context.DeadlineExceeded) {
		// Not the caller's deadline: it would be told that it was in a hurry.
		return &advised{noTLS, errors.New("no answer to the TLS handshake")}
	}
	if _, ok := errors.AsType[tls.RecordHeaderError](err); ok {
		return &advised{noTLS, err}
	}
	if _, ok := errors.AsType[x509.UnknownAuthorityError](err); ok {
		return &advised{"the certificate of Redis is signed by none of the CAs of " + settingCA +
			" (empty: of the system): name there the CA that signed it", err}
	}
	if _, ok := errors.AsType[x509.HostnameError](err); ok {
		return &advised{"the certificate of Redis is for another host: write the name that it has in " + settingURL +
			", or give Redis one for this name", err}
	}
	if _, ok := errors.AsType[*tls.CertificateVerificationError](err); ok {
		return &advised{"the certificate of Redis is not valid: renew it", err}
	}
	return fmt.Errorf("TLS handshake: %w", err)
}

const noTLS = "what listens there seems to speak no TLS: correct the port in " + settingURL +
	", or write redis:// for a Redis in the clear"

// load reads the files. wanted says whether the URL asks for TLS; without it there is
// no configuration, and a file that is named is a fault.
func (p *parser) load(files TLS, wanted bool, remote *peer) *tls.Config {
	if !wanted {
		for _, f := range []struct{ setting, path string }{
			{settingCA, files.CA}, {settingCert, files.Cert}, {settingKey, files.Key},
		} {
			if f.path != "" {
				p.fault(f.setting, "unknown", "It is for a Redis over TLS: begin "+settingURL+
					" with rediss:// (tls=true for Sentinel and Cluster), or remove it.")
			}
		}
		return nil
	}
	c := &tls.Config{MinVersion: tls.VersionTLS12}
	if files.CA != "" {
		c.RootCAs = p.authorities(files.CA)
	}
	shown := p.certificate(files)
	remote.shows = len(shown.Certificate) > 0
	c.GetClientCertificate = func(*tls.CertificateRequestInfo) (*tls.Certificate, error) {
		remote.asked.Store(true)
		return &shown, nil // an empty one says that there is none
	}
	return c
}

func (p *parser) authorities(path string) *x509.CertPool {
	rest, ok := p.file(settingCA, path)
	if !ok {
		return nil
	}
	pool, found := x509.NewCertPool(), 0
	for {
		var block *pem.Block
		if block, rest = pem.Decode(rest); block == nil {
			break
		}
		if block.Type != "CERTIFICATE" {
			continue
		}
		cert, err := x509.ParseCertificate(block.Bytes)
		if err != nil {
			p.fault(settingCA, "pem", fmt.Sprintf("Certificate %d of %s is none: %v.", found+1, path, err))
			return nil
		}
		pool.AddCert(cert)
		found++
	}
	if found == 0 {
		p.fault(settingCA, "pem", fmt.Sprintf("There is no certificate in PEM form in %s.", path))
	}
	return pool
}

func (p *parser) certificate(files TLS) tls.Certificate {
	switch {
	case files.Cert == "" && files.Key == "":
		return tls.Certificate{}
	case files.Key == "":
		p.fault(settingKey, "required", "Name the file of the key of "+settingCert+", too.")
	case files.Cert == "":
		p.fault(settingCert, "required", "Name the file of the certificate of "+settingKey+", too.")
	}
	cert, certOK := p.file(settingCert, files.Cert)
	key, keyOK := p.file(settingKey, files.Key)
	if !certOK || !keyOK {
		return tls.Certificate{}
	}
	pair, err := tls.X509KeyPair(cert, key)
	if err != nil { // it names what is wrong and repeats nothing of either file
		p.fault(settingCert, "pem", fmt.Sprintf("%s and %s are no certificate with its key: %v.",
			files.Cert, files.Key, err))
	}
	return pair
}

// file reads a file that is named; ok is false when none is, and when it cannot be read.
func (p *parser) file(setting, path string) (content []byte, ok bool) {
	if path == "" {
		return nil, false
	}
	f, err := os.Open(path)
	if err == nil {
		content, err = io.ReadAll(io.LimitReader(f, maxPEM+1))
		err = errors.Join(err, f.Close())
	}
	switch {
	case err != nil:
		p.fault(setting, "file", fmt.Sprintf("It cannot be read: %v.", err))
		return nil, false
	case len(content) > maxPEM:
		p.fault(setting, "max", fmt.Sprintf("%s is larger than %d bytes and no file of certificates.", path, maxPEM))
		return nil, false
	}
	return content, true
}

// err returns what was found as one fault, nil when nothing was.
func (p *parser) err() error {
	if len(p.faults) == 0 {
		return nil
	}
	return &crawl.Fault{
		Code:    crawl.CodeInvalid,
		Message: "Redis cannot be used as it is set; correct what is named.",
		Fields:  p.faults,
	}
}
