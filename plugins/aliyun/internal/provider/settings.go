package provider

import (
	"fmt"
	"net/url"
	"strings"
	"time"

	"github.com/sandbox-broker/sandbox-broker/plugins/aliyun/internal/agentrun/control"
	"github.com/sandbox-broker/sandbox-broker/plugins/aliyun/internal/agentrun/sign"
	"github.com/sandbox-broker/sandbox-broker/sdk"
)

// maxTimeout is what the service allows an execution.
const maxTimeout = 30 * time.Second

// minIdleTimeout is the shortest that can be set.
const minIdleTimeout = time.Minute

// maxLifetime is how long the service lets a sandbox live.
const maxLifetime = 6 * time.Hour

// settings are those of a provider block.
type settings struct {
	AccessKeyID     string        `config:"access_key_id"`
	AccessKeySecret string        `config:"access_key_secret"`
	SecurityToken   string        `config:"security_token"`
	Identity        string        `config:"identity"`
	RoleARN         string        `config:"role_arn"`
	RoleName        string        `config:"role_name"`
	OIDCProviderARN string        `config:"oidc_provider_arn"`
	OIDCTokenFile   string        `config:"oidc_token_file"`
	STSEndpoint     string        `config:"sts_endpoint"`
	AccountID       string        `config:"account_id"`
	Region          string        `config:"region"`
	TemplateName    string        `config:"template_name"`
	Timeout         int64         `config:"timeout"`
	IdleTimeout     time.Duration `config:"idle_timeout"`
	CPUs            float64       `config:"cpus"`
	MemoryMB        int64         `config:"memory_mb"`
	DiskMB          int64         `config:"disk_mb"`
	Network         string        `config:"network"`
	VPCID           string        `config:"vpc_id"`
	SecurityGroupID string        `config:"security_group_id"`
	VSwitchIDs      []string      `config:"vswitch_ids"`
	ControlEndpoint string        `config:"control_endpoint"`
	DataEndpoint    string        `config:"data_endpoint"`
}

const endpointPattern = `https?://[^/?#@]+/?`

func schema() sdk.Schema {
	return sdk.Schema{
		{
			Name: "access_key_id", Type: sdk.TypeString, Secret: true, Label: "Access key ID",
			Description: "ID of an access key of a RAM user, such as LTAI…; of a temporary one with security_token. Required unless identity says otherwise.",
		},
		{
			Name: "access_key_secret", Type: sdk.TypeString, Secret: true, Label: "Access key secret",
			Description: "The secret of that key.",
		},
		{
			Name: "security_token", Type: sdk.TypeString, Secret: true, Label: "Security token",
			Description: "The token of a temporary key of STS. It expires, and has to be replaced here before.",
		},
		{
			Name: "identity", Type: sdk.TypeString, FileOnly: true, Default: "key", Options: []string{"key", "ecs_role", "oidc", "default"}, Label: "Identity",
			Description: "Who the broker is to Aliyun: the access key above; the RAM role of this ECS instance; a token of OIDC in a file, as pods of ACK have one; or whatever the SDK of Aliyun finds, in the variables of the block's env first.",
		},
		{
			Name: "role_arn", Type: sdk.TypeString, FileOnly: true, Default: "", Pattern: `(acs:ram::[0-9]+:role/[A-Za-z0-9._-]+)?`, Label: "Role",
			Description: "A RAM role to take with that, such as acs:ram::1234567890123456:role/sandbox-broker. It is taken anew every hour.",
		},
		{Name: "role_name", Type: sdk.TypeString, FileOnly: true, Default: "", Label: "Role of the machine", Description: "For identity = \"ecs_role\"; without it, the one that the machine has."},
		{Name: "oidc_provider_arn", Type: sdk.TypeString, FileOnly: true, Default: "", Label: "OIDC provider", Description: "For identity = \"oidc\"; without it, ALIBABA_CLOUD_OIDC_PROVIDER_ARN in the block's env."},
		{Name: "oidc_token_file", Type: sdk.TypeString, FileOnly: true, Default: "", Label: "OIDC token", Description: "For identity = \"oidc\"; without it, ALIBABA_CLOUD_OIDC_TOKEN_FILE in the block's env."},
		{
			Name: "account_id", Type: sdk.TypeString, Required: true, Label: "Account ID",
			Description: "Number of the primary account, also where the key is of a RAM user.",
		},
		{
			Name: "region", Type: sdk.TypeString, Default: "cn-hangzhou", Label: "Region",
			Options:     []string{"cn-hangzhou", "cn-shanghai", "cn-beijing", "cn-shenzhen", "cn-guangzhou", "ap-southeast-1"},
			Description: "Where the sandboxes are. Whether cn-guangzhou has the service is not sure.",
		},
		{
			Name: "template_name", Type: sdk.TypeString, Default: "", Label: "Template",
			Description: "A template of the type CodeInterpreter that exists. Without one, the provider makes one when it is first needed, from the settings below.",
		},
		{
			Name: "timeout", Type: sdk.TypeInteger, Default: 30, Min: sdk.Bound(1), Max: sdk.Bound(30), Label: "Timeout",
			Description: "The most seconds that an execution gets. The service allows 30; whoever asks for more gets this.",
		},
		{
			Name: "idle_timeout", Type: sdk.TypeDuration, Default: "10m", Min: sdk.Bound(minIdleTimeout.Seconds()), Max: sdk.Bound(21600), Label: "Idle timeout",
			Description: "How long the service lets a sandbox be that nobody asks for anything. The provider asks in time as long as an instance lives, so that this is how long sandboxes outlive a broker that is gone. No sandbox lives longer than six hours.",
		},
		{
			Name: "cpus", Type: sdk.TypeNumber, Default: 2, Min: sdk.Bound(0.5), Max: sdk.Bound(64), Label: "CPUs",
			Description: "CPUs of a sandbox, for the template that the provider makes.",
		},
		{
			Name: "memory_mb", Type: sdk.TypeInteger, Default: 4096, Min: sdk.Bound(512), Max: sdk.Bound(262144), Label: "Memory",
			Description: "Memory of a sandbox, for the template that the provider makes.",
		},
		{
			Name: "disk_mb", Type: sdk.TypeInteger, Default: 512, Min: sdk.Bound(512), Max: sdk.Bound(262144), Label: "Disk",
			Description: "Disk of a sandbox, for the template that the provider makes.",
		},
		{
			Name: "network", Type: sdk.TypeString, Default: "PUBLIC", Options: []string{"PUBLIC", "PRIVATE", "PUBLIC_AND_PRIVATE"}, Label: "Network",
			Description: "What sandboxes of the template that the provider makes can reach: the Internet, a VPC of yours, or both.",
		},
		{Name: "vpc_id", Type: sdk.TypeString, Default: "", Label: "VPC", Description: "For a network that is not PUBLIC."},
		{Name: "security_group_id", Type: sdk.TypeString, Default: "", Label: "Security group", Description: "For a network that is not PUBLIC."},
		{Name: "vswitch_ids", Type: sdk.TypeList, Max: sdk.Bound(20), Label: "VSwitches", Description: "For a network that is not PUBLIC."},
		{
			Name: "control_endpoint", Type: sdk.TypeString, FileOnly: true, Pattern: endpointPattern, Label: "Control endpoint",
			Description: "Address of the control plane, where it is another than that of the region: on a private network, in tests.",
		},
		{
			Name: "data_endpoint", Type: sdk.TypeString, FileOnly: true, Pattern: endpointPattern, Label: "Data endpoint",
			Description: "Address of the data plane, likewise. It is taken as it is: no -ram is added to the account.",
		},
		{
			Name: "sts_endpoint", Type: sdk.TypeString, FileOnly: true, Pattern: `[A-Za-z0-9.:-]*`, Default: "", Label: "STS endpoint",
			Description: "Host where roles are taken, where it is another than that of the region.",
		},
	}
}

// source is where credentials come from.
func (s settings) source() control.Source {
	return control.Source{
		Way: s.Identity, Key: sign.Credentials{AccessKeyID: s.AccessKeyID, AccessKeySecret: s.AccessKeySecret, SecurityToken: s.SecurityToken},
		RoleName: s.RoleName, RoleARN: s.RoleARN, OIDCProviderARN: s.OIDCProviderARN, OIDCTokenFile: s.OIDCTokenFile,
		Region: s.Region, Endpoint: s.STSEndpoint,
	}
}

// endpoints are the addresses of the two planes.
func (s settings) endpoints() (control, data *url.URL, err error) {
	// A key signs for this host; the one without -ram is for other ways to log in.
	addresses := []string{
		fmt.Sprintf("https://agentrun.%s.aliyuncs.com", s.Region),
		fmt.Sprintf("https://%s-ram.agentrun-data.%s.aliyuncs.com", s.AccountID, s.Region),
	}
	for i, own := range []string{s.ControlEndpoint, s.DataEndpoint} {
		if own != "" {
			addresses[i] = strings.TrimSuffix(own, "/")
		}
	}
	if control, err = url.Parse(addresses[0]); err != nil || control.Hostname() == "" {
		return nil, nil, sdk.FieldErrorf(sdk.CodeInvalidConfig, "control_endpoint", "is not an address such as https://host")
	}
	if data, err = url.Parse(addresses[1]); err != nil || data.Hostname() == "" {
		return nil, nil, sdk.FieldErrorf(sdk.CodeInvalidConfig, "data_endpoint", "is not an address such as https://host")
	}
	return control, data, nil
}
