package xdsclient

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"net"
	"os"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/keepalive"
)

// Servers built with grpc-go end connections that ping more often than every
// five minutes, unless they were told otherwise.
var pings = keepalive.ClientParameters{Time: 5 * time.Minute, Timeout: 20 * time.Second}

// connect makes the connection for one stream: certificates are read again, and
// nothing retries beside us.
func connect(cfg *Config, dial func(ctx context.Context, address string) (net.Conn, error)) (*grpc.ClientConn, error) {
	security := insecure.NewCredentials()
	if cfg.TLS != nil {
		config, err := cfg.TLS.config()
		if err != nil {
			return nil, err
		}
		security = credentials.NewTLS(config)
	}
	opts := []grpc.DialOption{
		grpc.WithTransportCredentials(security), grpc.WithKeepaliveParams(pings),
		grpc.WithDisableServiceConfig(), grpc.WithDisableRetry(),
	}
	target := "dns:///" + cfg.Server
	if dial != nil {
		target = "passthrough:///" + cfg.Server
		opts = append(opts, grpc.WithContextDialer(func(ctx context.Context, address string) (net.Conn, error) { return dial(ctx, address) }))
	}
	return grpc.NewClient(target, opts...)
}

func (t *TLS) config() (*tls.Config, error) {
	out := &tls.Config{MinVersion: tls.VersionTLS12, ServerName: t.ServerName}
	if t.CA != "" {
		pem, err := os.ReadFile(t.CA)
		if err != nil {
			return nil, fmt.Errorf("discovery.xds.tls.ca: %w", err)
		}
		out.RootCAs = x509.NewCertPool()
		if !out.RootCAs.AppendCertsFromPEM(pem) {
			return nil, fmt.Errorf("discovery.xds.tls.ca: no certificate in %s", t.CA)
		}
	}
	if t.Cert != "" {
		pair, err := tls.LoadX509KeyPair(t.Cert, t.Key)
		if err != nil {
			return nil, fmt.Errorf("discovery.xds.tls.cert: %w", err)
		}
		out.Certificates = []tls.Certificate{pair}
	}
	return out, nil
}
