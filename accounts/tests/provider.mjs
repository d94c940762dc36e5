// A provider of OpenID Connect for the tests: npm's oidc-provider. Whoever comes is logged in as the `next` person, and
// the tests can have it answer wrongly: POST /test with {person, wrong} changes what it does.
import { createRequire } from "node:module";
import http from "node:http";
import path from "node:path";
import { pathToFileURL } from "node:url";
import { generateKeyPairSync } from "node:crypto";

const [modules, port, back] = process.argv.slice(2);
const load = async (name) => {
  const require = createRequire(path.join(modules, "node_modules", "x.js"));
  return import(pathToFileURL(require.resolve(name)));
};
const { default: Provider } = await load("oidc-provider");
const { SignJWT, importJWK, decodeJwt } = await load("jose");

const key = (kid) => {
  const { privateKey } = generateKeyPairSync("rsa", { modulusLength: 2048 });
  return { ...privateKey.export({ format: "jwk" }), kid, use: "sig", alg: "RS256" };
};
const issuer = `http://127.0.0.1:${port}`;
let person = { sub: "s1" };
let wrong = {};
let signing = key("first");

function build() {
  const provider = new Provider(issuer, {
    clients: [{
      client_id: "platform", client_secret: "a long secret of the platform", redirect_uris: [back],
      post_logout_redirect_uris: [back.replace(/signin.*/, "regist_login")], grant_types: ["authorization_code"],
    }],
    jwks: { keys: [signing] },
    cookies: { keys: ["a"] },
    pkce: { required: () => true },
    conformIdTokenClaims: false,
    claims: {
      openid: ["sub"],
      profile: ["preferred_username", "groups", "roles", "realm_access", "resource_access", "https://ml.example.com/groups"],
      email: ["email", "email_verified"],
    },
    features: { devInteractions: { enabled: false }, rpInitiatedLogout: { enabled: true } },
    interactions: { url: (ctx, interaction) => `/interaction/${interaction.uid}` },
    findAccount: (ctx, sub) => ({ accountId: sub, claims: () => ({ ...person, sub }) }),
    loadExistingGrant: async (ctx) => {
      const grant = new ctx.oidc.provider.Grant({ clientId: ctx.oidc.client.clientId, accountId: ctx.oidc.session.accountId });
      grant.addOIDCScope("openid profile email");
      await grant.save();
      return grant;
    },
  });
  provider.use(async (ctx, next) => {
    if (ctx.path.startsWith("/interaction/")) {
      const result = wrong.error ? { error: wrong.error } : { login: { accountId: person.sub } };
      return provider.interactionFinished(ctx.req, ctx.res, result).then(() => { ctx.respond = false; });
    }
    await next();
    if (ctx.path === "/.well-known/openid-configuration" && wrong.issuer) ctx.body = { ...ctx.body, issuer: wrong.issuer };
    if (ctx.path === "/token" && ctx.body?.id_token) {
      if (wrong.no_id_token) delete ctx.body.id_token;
      else if (wrong.claims || wrong.key || wrong.none) {
        const claims = { ...decodeJwt(ctx.body.id_token), ...wrong.claims };
        for (const name of Object.keys(claims)) if (claims[name] === null) delete claims[name];
        if (wrong.none) {
          const part = (value) => Buffer.from(JSON.stringify(value)).toString("base64url");
          ctx.body.id_token = `${part({ alg: "none" })}.${part(claims)}.`;
        } else {
          const used = wrong.key ? { ...key("x"), kid: signing.kid } : signing;
          ctx.body.id_token = await new SignJWT(claims).setProtectedHeader({ alg: "RS256", kid: used.kid })
            .sign(await importJWK(used, "RS256"));
        }
      }
    }
    if (ctx.path === "/token" && wrong.status) { ctx.status = wrong.status; ctx.body = "down"; }
    if (ctx.path === "/token" && wrong.html) { ctx.type = "html"; ctx.body = "<h1>hello</h1>"; }
  });
  return provider.callback();
}

let serve = build();
http.createServer((request, response) => {
  if (request.url !== "/test") {
    if (wrong.silent && request.url.startsWith("/token")) return;
    serve(request, response);
    return;
  }
  let body = "";
  request.on("data", (part) => { body += part; });
  request.on("end", () => {
    const said = JSON.parse(body);
    person = said.person ?? person;
    wrong = said.wrong ?? {};
    if (said.rotate) { signing = key(said.rotate); serve = build(); }
    response.end("ok");
  });
}).listen(Number(port), "127.0.0.1", () => console.log("ready"));
