package crawltest

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"math/big"
	"net"
	"os"
	"path/filepath"
	"testing"
	"time"
)

// Authority is a CA of the test's own. It lives as long as the test.
type Authority struct {
	File string // its certificate in PEM form

	t    testing.TB
	dir  string
	cert *x509.Certificate
	key  *ecdsa.PrivateKey
}

// NewAuthority makes a CA.
func NewAuthority(t testing.TB) *Authority {
	t.Helper()
	a := &Authority{t: t, dir: t.TempDir()}
	a.File, _ = a.issue(&x509.Certificate{
		Subject: pkix.Name{CommonName: "CA of a test"}, IsCA: true, BasicConstraintsValid: true,
		KeyUsage: x509.KeyUsageCertSign,
	})
	return a
}

// Issue signs a certificate for servers and clients that is good for the given host
// names and addresses, and for an hour. It returns the files of it and of its key.
func (a *Authority) Issue(hosts ...string) (certFile, keyFile string) {
	a.t.Helper()
	c := &x509.Certificate{
		Subject: pkix.Name{CommonName: "server of a test"}, KeyUsage: x509.KeyUsageDigitalSignature,
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth, x509.ExtKeyUsageClientAuth},
	}
	for _, h := range hosts {
		if ip := net.ParseIP(h); ip != nil {
			c.IPAddresses = append(c.IPAddresses, ip)
		} else {
			c.DNSNames = append(c.DNSNames, h)
		}
	}
	return a.issue(c)
}

func (a *Authority) issue(c *x509.Certificate) (certFile, keyFile string) {
	a.t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		a.t.Fatal(err)
	}
	now := time.Now()
	c.SerialNumber, c.NotBefore, c.NotAfter = big.NewInt(now.UnixNano()), now.Add(-time.Minute), now.Add(time.Hour)
	if a.cert == nil { // its own
		a.cert, a.key = c, key
	}
	der, err := x509.CreateCertificate(rand.Reader, c, a.cert, &key.PublicKey, a.key)
	if err != nil {
		a.t.Fatal(err)
	}
	secret, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		a.t.Fatal(err)
	}
	return a.write("CERTIFICATE", der), a.write("PRIVATE KEY", secret)
}

func (a *Authority) write(kind string, der []byte) string {
	a.t.Helper()
	path := filepath.Join(a.dir, Random()+".pem")
	if err := os.WriteFile(path, pem.EncodeToMemory(&pem.Block{Type: kind, Bytes: der}), 0o600); err != nil {
		a.t.Fatal(err)
	}
	return path
}
