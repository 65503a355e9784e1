package main

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"fmt"
	"io"
	"math/big"
	"net"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/isobar-xds/isobar/bench/internal/process"
	"github.com/isobar-xds/isobar/bench/internal/rawclient"
)

// services are small; attackers subscribe to them where they subscribe.
const services = `
services:
  - name: checkout
    localities:
      - {locality: us/a, endpoints: [{address: "10.0.0.1:80", max_rate: 100}]}
      - {locality: us/b, endpoints: [{address: "10.0.1.1:80", max_rate: 100}]}
`

// largeServices are those of a fleet: the answer to a poll for all of them takes 4 MB.
func largeServices() string {
	var b strings.Builder
	b.WriteString(services)
	for i := range 200 {
		fmt.Fprintf(&b, "  - name: large-%d\n    localities:\n      - locality: us/a\n        endpoints: [", i)
		for j := range 200 {
			fmt.Fprintf(&b, "%q, ", fmt.Sprintf("10.1.%d.%d:80", i, j))
		}
		b.WriteString("]\n")
	}
	return b.String()
}

// target is a server under attack.
type target struct {
	*process.Isobar

	rest      string // address
	tls       *tls.Config
	addresses int
	dir       string
}

// start starts a server for an attack.
func (o *options) start(ctx context.Context, a *attack) (_ *target, err error) {
	t := &target{addresses: o.addressesOf(a)}
	settings := process.IsobarOptions{Binary: o.isobar, Config: services, Stdout: io.Discard, Stderr: io.Discard}
	if o.tls || a.rest != nil {
		if t.dir, err = os.MkdirTemp("", "isobar-attacks-"); err != nil {
			return nil, err
		}
		if t.tls, err = certify(t.dir); err != nil {
			return nil, errors.Join(err, os.RemoveAll(t.dir))
		}
		settings.XDS = fmt.Sprintf(", tls: {cert: %q, key: %q}", filepath.Join(t.dir, "cert.pem"), filepath.Join(t.dir, "key.pem"))
	}
	if a.rest != nil {
		settings.Config = largeServices()
		if t.rest, err = process.FreeAddress(ctx); err != nil {
			return nil, errors.Join(err, os.RemoveAll(t.dir))
		}
		settings.XDS += fmt.Sprintf(", listen_rest: %q", t.rest)
	}
	t.Isobar, err = process.StartIsobar(ctx, settings)
	if err != nil && t.dir != "" {
		err = errors.Join(err, os.RemoveAll(t.dir))
	}
	return t, err
}

func (t *target) stop() error {
	err := t.Stop()
	if t.dir != "" {
		err = errors.Join(err, os.RemoveAll(t.dir))
	}
	return err
}

// way is how the connection of a number comes.
func (t *target) way(i int) *rawclient.Way {
	return &rawclient.Way{TLS: t.tls, From: netip.AddrFrom4([4]byte{127, 0, 1, byte(1 + i%max(1, t.addresses))})} //nolint:gosec // at most 200 addresses
}

// certify writes cert.pem and key.pem of a server, and returns what its clients need.
func certify(dir string) (*tls.Config, error) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return nil, err
	}
	template := &x509.Certificate{
		SerialNumber: big.NewInt(1), NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(365 * 24 * time.Hour),
		IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)}, ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth},
		IsCA: true, BasicConstraintsValid: true, KeyUsage: x509.KeyUsageDigitalSignature | x509.KeyUsageCertSign,
	}
	cert, err := x509.CreateCertificate(rand.Reader, template, template, key.Public(), key)
	if err != nil {
		return nil, err
	}
	private, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		return nil, err
	}
	roots := x509.NewCertPool()
	for name, block := range map[string]*pem.Block{"cert.pem": {Type: "CERTIFICATE", Bytes: cert}, "key.pem": {Type: "PRIVATE KEY", Bytes: private}} {
		text := pem.EncodeToMemory(block)
		roots.AppendCertsFromPEM(text) // of the key there is none
		if err := os.WriteFile(filepath.Join(dir, name), text, 0o600); err != nil {
			return nil, err
		}
	}
	return &tls.Config{RootCAs: roots, ServerName: "127.0.0.1", MinVersion: tls.VersionTLS12}, nil
}
