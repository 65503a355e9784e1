package rpc

// Fields of Locality, Address and SocketAddress.
const (
	LocalityRegion  = 1
	LocalityZone    = 2
	LocalitySubZone = 3

	AddressSocket   = 1
	AddressPipe     = 2
	AddressInternal = 3

	SocketHost      = 2
	SocketPort      = 3
	SocketNamedPort = 4
)
