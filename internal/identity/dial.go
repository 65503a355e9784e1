package identity

import (
	"crypto/tls"
	"errors"
	"fmt"
	"time"

	"github.com/isobar-xds/isobar/internal/filewatch"
)

// DialFiles are the PEM files of a client.
type DialFiles struct {
	CA   string // who signs the server's certificate; "" = whom the system trusts
	Cert string // shown to the server; "" = none
	Key  string
}

// Config reads the files; an error names the one that is bad. A client that
// wants to follow them asks again for each connection.
func (f DialFiles) Config() (*tls.Config, error) {
	out := &tls.Config{MinVersion: tls.VersionTLS12}
	if f.CA != "" {
		pem, err := filewatch.Read(f.CA, maxFile)
		if err != nil {
			return nil, err
		}
		if out.RootCAs, err = parseAuthorities(pem); err != nil {
			return nil, fmt.Errorf("%s: %w", f.CA, err)
		}
	}
	if (f.Cert == "") != (f.Key == "") {
		return nil, errors.New("a certificate and its key belong together: give both")
	}
	if f.Cert == "" {
		return out, nil
	}
	cert, err := filewatch.Read(f.Cert, maxFile)
	if err != nil {
		return nil, err
	}
	key, err := filewatch.Read(f.Key, maxFile)
	if err != nil {
		return nil, err
	}
	if err := checkPEM(cert); err != nil {
		return nil, fmt.Errorf("%s: %w", f.Cert, err)
	}
	pair, err := tls.X509KeyPair(cert, key)
	if err != nil {
		return nil, fmt.Errorf("%s with %s: %w", f.Cert, f.Key, err)
	}
	out.Certificates = []tls.Certificate{pair}
	return out, nil
}

// Validity reads from when until when the certificate is good that is shown at
// the next connection; ok is false where none is.
func (f DialFiles) Validity() (from, until time.Time, ok bool, err error) {
	if f.Cert == "" {
		return from, until, false, nil
	}
	config, err := f.Config()
	if err != nil {
		return from, until, true, err
	}
	first, err := endsFirst(&config.Certificates[0])
	if err != nil {
		return from, until, true, fmt.Errorf("%s: %w", f.Cert, err)
	}
	return first.NotBefore, first.NotAfter, true, nil
}

// ReadToken reads a token file.
func ReadToken(path string) (string, error) {
	content, err := filewatch.Read(path, maxFile)
	if err != nil {
		return "", err
	}
	token, err := parseToken(content)
	if err != nil {
		return "", fmt.Errorf("%s: %w", path, err)
	}
	return token, nil
}
