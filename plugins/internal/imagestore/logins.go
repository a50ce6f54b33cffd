package imagestore

import (
	"crypto/tls"
	"encoding/base64"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"net/http"
	"net/netip"
	"net/url"
	"regexp"
	"strings"

	"github.com/google/go-containerregistry/pkg/authn"
	"github.com/google/go-containerregistry/pkg/name"

	"github.com/sandbox-broker/sandbox-broker/sdk"
)

// Login is what a registry gives images out for. It goes to that registry, and to TokenHost.
type Login struct {
	Username, Password string
	// TokenHost is where the registry says that its tokens are to be had, host or host:port;
	// "" for at the registry itself.
	TokenHost string
}

// hostForm is a name or an address, and a port.
var hostForm = regexp.MustCompile(`^([A-Za-z0-9]([A-Za-z0-9.-]*[A-Za-z0-9])?|\[[0-9A-Fa-f:.]+\])(:[0-9]{1,5})?$`)

// RegistryName is the one name that a registry, or the host of its tokens, has among logins.
func RegistryName(host string) (string, error) {
	if !hostForm.MatchString(host) {
		return "", errors.New("must be a host, or host:port")
	}
	of, err := name.NewRegistry(host)
	if err != nil {
		return "", errors.New("must be a host, or host:port")
	}
	return strings.ToLower(of.RegistryStr()), nil
}

// authenticator is what the library asks a registry with.
func (l *Login) authenticator() authn.Authenticator {
	if l == nil {
		return authn.Anonymous
	}
	return &authn.Basic{Username: l.Username, Password: l.Password}
}

// guarded is the request as it may be sent with a login. The library sends the password
// wherever the registry says that a token is to be had, and nobody has named that place.
func (r *registry) guarded(req *http.Request, address string) (*http.Request, error) {
	if r.login == nil {
		return req, nil
	}
	secret := req.Header.Get("Authorization")
	kind, _, _ := strings.Cut(secret, " ")
	// A POST is one of a token in its body.
	if secret == "" && req.Method != http.MethodPost {
		return req, nil
	}
	theirs := r.isNamed(address) || r.login.TokenHost != "" && address == withPort(r.login.TokenHost, "443")
	switch {
	case !theirs && strings.EqualFold(kind, "Bearer") && req.Method != http.MethodPost:
		// It is that of another place to which the registry leads, or of nobody: a layer in a
		// store elsewhere is to be had without.
		req = req.Clone(req.Context())
		req.Header.Del("Authorization")
		return req, nil
	case !theirs:
		return nil, sdk.FieldErrorf(sdk.CodeInvalidRequest, "from", "cannot be had with the login of %s: it asks to be told the password at %s, which is not its token_host", r.named, clipped(address))
	case req.URL.Scheme != "https" && !isLoopback(req.URL.Hostname()):
		return nil, sdk.FieldErrorf(sdk.CodeInvalidRequest, "from", "cannot be had with the login of %s: the registry is not reached over HTTPS, and the password could be read on the way", r.named)
	}
	return req, nil
}

// isLoopback reports whether a host is this machine.
func isLoopback(host string) bool {
	at, err := netip.ParseAddr(host)
	return host == "localhost" || err == nil && at.IsLoopback()
}

// said is what an error of a registry says, as text for a log. Who was told a password may
// say it again.
func (l *Login) said(err error) string {
	if l == nil {
		return clipped(err.Error())
	}
	text := "what it answers is not understood"
	if e, ok := errors.AsType[*net.OpError](err); ok {
		text = e.Error()
	} else if e, ok := errors.AsType[*net.DNSError](err); ok {
		text = e.Error()
	} else if e, ok := errors.AsType[*tls.CertificateVerificationError](err); ok {
		text = e.Error()
	} else if e, ok := errors.AsType[*fs.PathError](err); ok { // of this machine
		text = e.Error()
	} else if errors.Is(err, errSlow) {
		text = errSlow.Error()
	}
	return clipped(l.without(text))
}

// without is a text that does not have the password any more.
func (l *Login) without(text string) string {
	if l == nil {
		return text
	}
	basic := []byte(l.Username + ":" + l.Password)
	for _, secret := range []string{
		l.Password, url.QueryEscape(l.Password), url.PathEscape(l.Password), fmt.Sprintf("%q", l.Password),
		base64.StdEncoding.EncodeToString(basic), base64.URLEncoding.EncodeToString(basic),
	} {
		text = strings.ReplaceAll(text, secret, "***")
	}
	return text
}
