// Starts the reference page on the platform's own schema.

window.SwaggerUIBundle({
  url: document.getElementById("reference").dataset.schema,
  dom_id: "#reference",
  deepLinking: true,
  persistAuthorization: false,
  presets: [window.SwaggerUIBundle.presets.apis],
});
