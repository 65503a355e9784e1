package admission

import (
	"net"

	"google.golang.org/grpc/credentials"
)

// Over counts the messages of all connections that come by these credentials. It
// stands above TLS, where frames can be read.
func (m *Messages) Over(c credentials.TransportCredentials) credentials.TransportCredentials {
	return counted{c, m}
}

type counted struct {
	credentials.TransportCredentials

	messages *Messages
}

// ServerHandshake implements credentials.TransportCredentials.
func (c counted) ServerHandshake(raw net.Conn) (net.Conn, credentials.AuthInfo, error) {
	conn, info, err := c.TransportCredentials.ServerHandshake(raw)
	if err != nil {
		return nil, nil, err
	}
	followed, f := c.messages.followed(conn)
	return followed, followedInfo{info, f}, nil
}

// Clone implements credentials.TransportCredentials.
func (c counted) Clone() credentials.TransportCredentials {
	return counted{c.TransportCredentials.Clone(), c.messages}
}
