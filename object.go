package isobar

// The owners of a service.
const (
	OwnerFile = "file"
	OwnerAPI  = "api"
	OwnerXDS  = "xds" // another control plane, by `discovery.xds` of the configuration file
	OwnerDNS  = "dns" // names that DNS resolves, by `discovery.dns` of the configuration file
	// OwnerKubernetes is a Kubernetes cluster, by `discovery.kubernetes` of the configuration file.
	OwnerKubernetes = "kubernetes"
)

// Object is a service with its owner and revision.
type Object struct {
	Service  Service `json:"service"`
	Owner    string  `json:"owner"`    // OwnerFile, OwnerAPI, OwnerXDS, OwnerDNS or OwnerKubernetes
	Revision uint64  `json:"revision"` // changes with each change of the object; its ETag
}
