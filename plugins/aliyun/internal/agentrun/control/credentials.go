package control

import (
	"context"
	"errors"
	"fmt"
	"regexp"
	"time"

	"github.com/aliyun/alibaba-cloud-sdk-go/sdk/auth/credentials"

	"github.com/sandbox-broker/sandbox-broker/plugins/aliyun/internal/agentrun/sign"
)

// The ways to come by credentials.
const (
	// FromKey takes an access key, with a token if it is a temporary one.
	FromKey = "key"
	// FromECSRole asks the metadata of the machine, which must be an ECS instance
	// that has a RAM role.
	FromECSRole = "ecs_role"
	// FromOIDC takes a role with a token in a file, as pods of ACK have one.
	FromOIDC = "oidc"
	// FromChain goes through what the SDK of Aliyun knows: its environment variables,
	// OIDC, the profiles of the CLI, the machine's role, an address.
	FromChain = "default"
)

// Source says where credentials come from.
type Source struct {
	Way string
	// Key is for FromKey.
	Key sign.Credentials
	// RoleName is for FromECSRole; empty for the one that the machine has.
	RoleName string
	// RoleARN is the role that FromOIDC takes; the others take it with the
	// credentials that they have found, if it is not empty.
	RoleARN                        string
	OIDCProviderARN, OIDCTokenFile string
	// Region or Endpoint (a host) say where roles are taken.
	Region, Endpoint string
}

// Credentials fetches credentials, and fetches them anew before they expire.
type Credentials struct {
	// turn has room for one: the SDK's providers cannot be shared by goroutines.
	turn     chan struct{}
	provider credentials.CredentialsProvider
	source   Source
	renewed  time.Time
}

// NewCredentials makes them; nothing is fetched yet.
func NewCredentials(s Source) (*Credentials, error) {
	provider, err := roleOf(s)
	if err != nil {
		return nil, withoutQueries(err)
	}
	return &Credentials{turn: make(chan struct{}, 1), provider: provider, source: s}, nil
}

func roleOf(s Source) (credentials.CredentialsProvider, error) {
	provider, err := providerOf(s)
	if err == nil && s.RoleARN != "" && s.Way != FromOIDC {
		return built(credentials.NewRAMRoleARNCredentialsProviderBuilder().WithCredentialsProvider(provider).
			WithRoleArn(s.RoleARN).WithRoleSessionName("sandbox-broker").WithStsRegion(s.Region).WithStsEndpoint(s.Endpoint).Build())
	}
	return provider, err
}

func providerOf(s Source) (credentials.CredentialsProvider, error) {
	switch s.Way {
	case FromECSRole:
		return built(credentials.NewECSRAMRoleCredentialsProviderBuilder().WithRoleName(s.RoleName).Build())
	case FromOIDC:
		return built(credentials.NewOIDCCredentialsProviderBuilder().WithRoleArn(s.RoleARN).WithOIDCProviderARN(s.OIDCProviderARN).
			WithOIDCTokenFilePath(s.OIDCTokenFile).WithRoleSessionName("sandbox-broker").WithStsRegion(s.Region).WithSTSEndpoint(s.Endpoint).Build())
	case FromChain:
		return credentials.NewDefaultCredentialsProvider(), nil
	case FromKey:
		if s.Key.SecurityToken != "" {
			return credentials.NewStaticSTSCredentialsProvider(s.Key.AccessKeyID, s.Key.AccessKeySecret, s.Key.SecurityToken), nil
		}
		return credentials.NewStaticAKCredentialsProvider(s.Key.AccessKeyID, s.Key.AccessKeySecret), nil
	default:
		return nil, fmt.Errorf("there is no way %.50q to come by credentials", s.Way)
	}
}

// built keeps a nil of one type from becoming an interface that is not nil.
func built[P credentials.CredentialsProvider](p P, err error) (credentials.CredentialsProvider, error) {
	if err != nil {
		return nil, err
	}
	return p, nil
}

// Get returns credentials that are good for some minutes. The SDK knows no contexts: a
// fetch ends by its own time limits, of some seconds.
func (c *Credentials) Get(ctx context.Context) (sign.Credentials, error) {
	select {
	case c.turn <- struct{}{}:
		defer func() { <-c.turn }()
	case <-ctx.Done():
		return sign.Credentials{}, ctx.Err()
	}
	got, err := c.provider.GetCredentials()
	if err != nil {
		return sign.Credentials{}, fmt.Errorf("fetch credentials: %w", withoutQueries(err))
	}
	return sign.Credentials{AccessKeyID: got.AccessKeyId, AccessKeySecret: got.AccessKeySecret, SecurityToken: got.SecurityToken}, nil
}

// minRenewal is how long credentials that were fetched anew are used at least, whatever is
// said of them.
const minRenewal = time.Minute

// Renew forgets what was fetched, for credentials that were refused although their time
// is not over: a role can be revoked. It says whether to try again.
func (c *Credentials) Renew(ctx context.Context) bool {
	if c.source.Way == FromKey && c.source.RoleARN == "" {
		return false // a key stays what it is
	}
	select {
	case c.turn <- struct{}{}:
		defer func() { <-c.turn }()
	case <-ctx.Done():
		return false
	}
	if time.Since(c.renewed) < minRenewal {
		return false
	}
	provider, err := roleOf(c.source)
	if err != nil {
		return false
	}
	c.provider, c.renewed = provider, time.Now()
	return true
}

// queries are parts of addresses. Those of Aliyun's token service carry keys and tokens,
// and the errors of the SDK the addresses.
var queries = regexp.MustCompile(`\?[^\s"]+`)

func withoutQueries(err error) error {
	return errors.New(queries.ReplaceAllString(err.Error(), "?…"))
}
