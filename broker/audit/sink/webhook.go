package sink

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"time"

	"github.com/sandbox-broker/sandbox-broker/sdk/retry"
)

// postTimeout bounds one request, its answer included.
const postTimeout = 30 * time.Second

// Webhook posts lines to an HTTP server, many at once, one a line of the body
// (application/x-ndjson). An answer of 2xx says that they were taken.
type Webhook struct {
	address, token string
	client         *http.Client
}

// NewWebhook returns a sender to an address, with a bearer token if that is not
// empty.
func NewWebhook(address, token string) *Webhook {
	return &Webhook{address: address, token: token, client: &http.Client{
		Timeout:   postTimeout,
		Transport: &http.Transport{Proxy: http.ProxyFromEnvironment, ForceAttemptHTTP2: true, MaxIdleConns: 2, IdleConnTimeout: time.Minute},
		// Another address would get the token and the lines.
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}}
}

var _ Sender = (*Webhook)(nil)

// Send implements Sender.
func (w *Webhook) Send(ctx context.Context, lines [][]byte) error {
	body := append(bytes.Join(lines, []byte("\n")), '\n')
	resp, err := retry.HTTP(ctx, retry.Policy{}, retry.Always, func(ctx context.Context) (*http.Response, error) {
		req, err := http.NewRequestWithContext(ctx, http.MethodPost, w.address, bytes.NewReader(body))
		if err != nil {
			return nil, err
		}
		req.Header.Set("Content-Type", "application/x-ndjson")
		if w.token != "" {
			req.Header.Set("Authorization", "Bearer "+w.token)
		}
		return w.client.Do(req)
	})
	if err != nil {
		return withoutAddress(err)
	}
	defer resp.Body.Close()
	if resp.StatusCode/100 != 2 {
		return fmt.Errorf("the webhook answers with status %d", resp.StatusCode)
	}
	return nil
}

// withoutAddress keeps the address out of the log: it may hold a secret.
func withoutAddress(err error) error {
	if e, ok := errors.AsType[*url.Error](err); ok {
		return fmt.Errorf("post to the webhook: %w", e.Err)
	}
	return err
}

// Close implements Sender.
func (w *Webhook) Close() { w.client.CloseIdleConnections() }
