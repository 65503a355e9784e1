package identity

import (
	"bytes"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"fmt"
)

var (
	errDamagedPEM = errors.New("PEM that is cut off or damaged")
	errNoPEM      = errors.New("no PEM certificate in it")
)

const certificateBlock = "CERTIFICATE"

// checkPEM refuses files of which the usual readers would silently take a part
// only: a block that is cut off, as in a file that is still being written, is no
// block for them, nor is one with a damaged line.
func checkPEM(data []byte) error {
	begun := 0
	for line := range bytes.Lines(data) {
		if bytes.HasPrefix(line, []byte("-----BEGIN ")) {
			begun++
		}
	}
	read := 0
	for block, rest := pem.Decode(data); block != nil; block, rest = pem.Decode(rest) {
		read++
	}
	if read < begun {
		return fmt.Errorf("%w: %d of %d blocks can be read", errDamagedPEM, read, begun)
	}
	return nil
}

// parseAuthorities reads the certificates of authorities, all of them or none.
func parseAuthorities(data []byte) (*x509.CertPool, error) {
	if err := checkPEM(data); err != nil {
		return nil, err
	}
	pool, n := x509.NewCertPool(), 0
	for block, rest := pem.Decode(data); block != nil; block, rest = pem.Decode(rest) {
		if block.Type != certificateBlock {
			continue
		}
		n++
		cert, err := x509.ParseCertificate(block.Bytes)
		if err != nil {
			return nil, fmt.Errorf("certificate %d: %w", n, err)
		}
		pool.AddCert(cert)
	}
	if n == 0 {
		return nil, errNoPEM
	}
	return pool, nil
}
