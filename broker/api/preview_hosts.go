package api

import (
	"net"
	"net/http"
	"strings"
	"sync"
	"time"

	"github.com/gofiber/fiber/v2"
	"github.com/valyala/fasthttp"

	"github.com/sandbox-broker/sandbox-broker/broker/api/preview"
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

// SetPreviewHosts changes them for requests that come from now on; nil for none.
func (s *Server) SetPreviewHosts(hosts *PreviewHosts) { s.previewHosts.Store(hosts) }

// routePreviewHost stands for these requests in the log and in the metrics.
const routePreviewHost = "{port}-{token}.{domain}/*"

// previewLabel is what stands before the domain of previews in the host that a request
// is for. All such hosts are programs': no route of the broker's is reached there.
func (s *Server) previewLabel(header *fasthttp.RequestHeader) (label string, ok bool) {
	hosts := s.previewHosts.Load()
	if hosts == nil {
		return "", false
	}
	host := strings.ToLower(string(header.Host()))
	if name, port, err := net.SplitHostPort(host); err == nil && port != "" {
		host = name
	}
	return strings.CutSuffix(strings.TrimSuffix(host, "."), "."+hosts.Domain)
}

// answerPreviewHost answers a request for the host of a preview. It never reaches
// Fiber's routes.
func (s *Server) answerPreviewHost(fctx *fasthttp.RequestCtx, label string) {
	c := s.app.AcquireCtx(fctx)
	defer s.app.ReleaseCtx(c)
	x := exchangeOf(c)
	x.route = routePreviewHost
	if err := s.passToHost(c, label); err != nil {
		x.code = answerError(c, err, x.requestID)
		s.log(x, method(c), c.Response().StatusCode(), err)
	}
}

func (s *Server) passToHost(c *fiber.Ctx, label string) error {
	hosts, m := s.previewHosts.Load(), c.Method()
	if hosts == nil || m == http.MethodTrace || m == http.MethodConnect {
		return fiber.NewError(http.StatusMethodNotAllowed)
	}
	grant, err := s.grantOf(label)
	if err != nil {
		return errInvalidLink
	}
	exchangeOf(c).tenant = grant.Tenant
	if !admitted(c.Context().Conn()).Own(grant.Tenant) {
		return errTooManyConnections
	}
	return s.handOver(c, func(w http.ResponseWriter, r *http.Request) error {
		return s.passOn(w, r, passage{
			scheme: hosts.Scheme, tenant: tenant.Tenant{Name: grant.Tenant}, instanceID: grant.InstanceID,
			port: grant.Port, until: grant.Expires, ownHost: true,
		})
	})
}

// errInvalidLink says the same of a link that was forged and of one that has expired.
var errInvalidLink = sdk.Errorf(sdk.CodeNotAllowed, "The preview link is not valid, or has expired; ask for another.")

// grantOf finds the instance that a label is for among those that live.
func (s *Server) grantOf(text string) (preview.Grant, error) {
	label, err := preview.ReadLabel(text, time.Now())
	if err != nil {
		return preview.Grant{}, err
	}
	text = strings.ToLower(text)
	id, known := s.labels.get(text)
	if !known {
		for _, info := range s.instances.ListAll("", instance.ListRequest{}).Instances {
			if s.previews.VerifyLabel(label, info.ID.Tenant, info.ID.String()) {
				id = info.ID.String()
				s.labels.put(text, id)
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
