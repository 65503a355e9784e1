package isobar

// The owners of a service.
const (
	OwnerFile = "file"
	OwnerAPI  = "api"
	OwnerXDS  = "xds" // another control plane, by `source` of the configuration file
)

// Object is a service with its owner and revision.
type Object struct {
	Service  Service `json:"service"`
	Owner    string  `json:"owner"`    // OwnerFile, OwnerAPI or OwnerXDS
	Revision uint64  `json:"revision"` // changes with each change of the object; its ETag
}
