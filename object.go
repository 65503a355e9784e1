package isobar

// The owners of a service.
const (
	OwnerFile = "file"
	OwnerAPI  = "api"
	OwnerXDS  = "xds" // another control plane, by `source.xds` of the configuration file
	OwnerDNS  = "dns" // names that DNS resolves, by `source.dns` of the configuration file
)

// Object is a service with its owner and revision.
type Object struct {
	Service  Service `json:"service"`
	Owner    string  `json:"owner"`    // OwnerFile, OwnerAPI, OwnerXDS or OwnerDNS
	Revision uint64  `json:"revision"` // changes with each change of the object; its ETag
}
