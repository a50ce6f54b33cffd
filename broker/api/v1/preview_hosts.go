package v1

import (
	"context"
	"net"
	"net/http"
	"strings"
	"sync"
	"time"

	"github.com/sandbox-broker/sandbox-broker/broker/api/lending"
	"github.com/sandbox-broker/sandbox-broker/broker/api/portproxy"
	"github.com/sandbox-broker/sandbox-broker/broker/api/preview"
	"github.com/sandbox-broker/sandbox-broker/broker/api/rest"
	"github.com/sandbox-broker/sandbox-broker/broker/instance"
	"github.com/sandbox-broker/sandbox-broker/broker/tenant"
	"github.com/sandbox-broker/sandbox-broker/sdk"
)

// PreviewHosts are addresses at which each preview has a host of its own, before a
// domain that leads to the server with all its hosts.
type PreviewHosts struct {
	Scheme, Domain string
	// Port is empty for the scheme's own.
	Port string
}

// address is where the preview with a label is.
func (p PreviewHosts) address(label string) string {
	host := label + "." + p.Domain
	if p.Port != "" {
		host = net.JoinHostPort(host, p.Port)
	}
	return p.Scheme + "://" + host + "/"
}

// routePreviewHost stands for these requests in the log and in the metrics.
const routePreviewHost = "{port}-{token}.{domain}/*"

// previewLabel is what stands before the domain of previews in the host that a request
// is for. All such hosts are programs': no route of the broker's is reached there.
func (h portRoutes) previewLabel(host string) (label string, ok bool) {
	hosts := h.hosts.Load()
	if hosts == nil {
		return "", false
	}
	return strings.CutSuffix(host, "."+hosts.Domain)
}

func (h portRoutes) openPreviewHost(_ context.Context, asked rest.Asked) (string, rest.StreamHandler, error) {
	hosts := h.hosts.Load()
	grant, err := h.grantOf(asked.Label)
	if err != nil || hosts == nil {
		return "", nil, errInvalidLink
	}
	return grant.Tenant, func(w http.ResponseWriter, r *http.Request) error {
		return lending.ServePort(w, r, h.instances, lending.Passage{
			Tenant: tenant.Tenant{Name: grant.Tenant}, InstanceID: grant.InstanceID, Until: grant.Expires,
			Exchange: portproxy.Exchange{Port: grant.Port, Path: asked.Path, Scheme: hosts.Scheme, OwnHost: true},
		})
	}, nil
}

// errInvalidLink says the same of a link that was forged and of one that has expired.
var errInvalidLink = sdk.Errorf(sdk.CodeNotAllowed, "The preview link is not valid, or has expired; ask for another.")

// grantOf finds the instance that a label is for among those that live.
func (h portRoutes) grantOf(text string) (preview.Grant, error) {
	label, err := preview.ReadLabel(text, time.Now())
	if err != nil {
		return preview.Grant{}, err
	}
	text = strings.ToLower(text)
	id, known := h.labels.get(text)
	if !known {
		for _, info := range h.instances.ListAll("", instance.ListRequest{}).Instances {
			if h.previews.VerifyLabel(label, info.ID.Tenant, info.ID.String()) {
				id = info.ID.String()
				h.labels.put(text, id)
				break
			}
		}
	}
	if id == "" {
		return preview.Grant{}, preview.ErrInvalid
	}
	owner, _, _ := strings.Cut(id, ":")
	return preview.Grant{Tenant: owner, InstanceID: id, Port: label.Port, Expires: label.Expires}, nil
}

// labelCache remembers which instance a label that was verified is for: a page asks for
// many files.
type labelCache struct {
	mu    sync.Mutex
	known map[string]string
}

const maxLabels = 4096

func (l *labelCache) get(label string) (id string, ok bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	id, ok = l.known[label]
	return id, ok
}

func (l *labelCache) put(label, id string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.known == nil || len(l.known) >= maxLabels {
		l.known = map[string]string{}
	}
	l.known[label] = id
}
